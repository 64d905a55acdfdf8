package frame

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"pgregory.net/rapid"
)

func TestFramesComeBackAsTheyWent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var sent []Frame
		for range rapid.IntRange(0, 8).Draw(t, "frames") {
			f := Frame{
				Kind:    Kind(rapid.IntRange(1, int(kindEnd)-1).Draw(t, "kind")),
				ID:      rapid.Uint32().Draw(t, "id"),
				Payload: rapid.SliceOfN(rapid.Byte(), 0, 100<<10).Draw(t, "payload"),
			}
			sent = append(sent, f)
			stream = Append(stream, f)
		}
		r := NewReader(bytes.NewReader(stream))
		for i, want := range sent {
			got, err := r.Next()
			if err != nil || got.Kind != want.Kind || got.ID != want.ID ||
				!bytes.Equal(got.Payload, want.Payload) {
				t.Fatalf("frame %d came back changed: %v", i, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("after the last frame: %v, want EOF", err)
		}
	})
}

func TestReaderRefuses(t *testing.T) {
	whole := Append(nil, Frame{Kind: Stdout, ID: 1, Payload: []byte("text")})
	table := []struct {
		name   string
		stream []byte
		want   errs.Kind
	}{
		{"kind 0", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, errs.Protocol},
		{"an unknown kind", []byte{byte(kindEnd), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, errs.Protocol},
		{"bytes that must be zero", []byte{1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0}, errs.Protocol},
		{"a huge payload", []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}, errs.TooBig},
		{"half a header", whole[:5], errs.Disconnected},
		{"half a payload", whole[:len(whole)-1], errs.Disconnected},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(row.stream)).Next()
			if !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	want := Command{Script: "exit 3", Env: []string{"A=b"}, Dir: "/"}
	stream, err := AppendJSON(nil, Run, 7, want)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(bytes.NewReader(stream)).Next()
	if err != nil {
		t.Fatal(err)
	}
	var got Command
	if err := f.Body(&got); err != nil || got.Script != want.Script || got.Dir != want.Dir ||
		len(got.Env) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := (Frame{Payload: []byte("{")}).Body(&got); !errors.Is(err, errs.Protocol) {
		t.Fatalf("broken JSON: %v", err)
	}
	huge := Command{Script: strings.Repeat("x", PayloadMax)}
	if _, err := AppendJSON(nil, Run, 1, huge); !errors.Is(err, errs.TooBig) {
		t.Fatalf("a script beyond the limit: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Append(nil, Frame{Kind: Stdout, ID: 3, Payload: []byte("hello")}))
	f.Add(Append(Append(nil, Frame{Kind: Kill, ID: 1}), Frame{Kind: Exit, Payload: []byte("{}")}))
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		var back []byte
		for {
			got, err := r.Next()
			if err != nil {
				break
			}
			if len(got.Payload) > PayloadMax {
				t.Fatalf("a payload of %d bytes came through", len(got.Payload))
			}
			back = Append(back, got)
		}
		if !bytes.HasPrefix(stream, back) {
			t.Fatal("what was read is not what the stream says")
		}
	})
}
