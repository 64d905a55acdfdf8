package guard

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// A volume that the rights of a client name is the client's, whoever owns it: that is what they are
// for. So what is asked of it is asked as root.

func beginVolume(p *Pass, a *meta.Args) error {
	switch {
	case !p.rights.Volume(a.Name):
		return p.refuse(noVolume, p.forbidden("its rights do not name volume "+quoted(a.Name)))
	case p.op == meta.OpOpenVolume && p.rights.ReadOnly && a.Open&meta.OpenWrite != 0:
		return p.refuse(readOnly, p.isReadOnly())
	}
	a.Caller.Cred = meta.Cred{}
	return nil
}

// beginAwaitVolume: what the client has seen names a writer as it was told to it.
func beginAwaitVolume(p *Pass, a *meta.Args) error {
	if a.Seen.Writer != "" {
		v, err := p.volume(context.Background(), a.Name)
		if err != nil {
			return err
		}
		if strings.TrimPrefix(v.Writer, p.prefix) == a.Seen.Writer {
			a.Seen.Writer = v.Writer
		}
	}
	return beginVolume(p, a)
}

// endVolume names the writer as the client names itself.
func endVolume(_ context.Context, p *Pass, r *meta.Result) error {
	r.Volume.Writer = strings.TrimPrefix(r.Volume.Writer, p.prefix)
	return nil
}

func quoted(name string) string { return `"` + strings.ToValidUTF8(name, "?") + `"` }

// isItsVolume tells whether an inode is that of a volume that the client may use.
func (p *Pass) isItsVolume(ino meta.Ino) (bool, error) {
	ok := p.rights.Volume(identity.AllVolumes)
	for i := 0; i < len(p.rights.Volumes) && !ok; i++ {
		v, err := p.volume(context.Background(), p.rights.Volumes[i])
		if err != nil {
			return false, err
		}
		ok = v.Ino == ino
	}
	if ok && p.op == meta.OpOpen {
		p.asRoot = true
	}
	return ok, nil
}

// volume looks a volume up; the zero Volume if there is none.
func (p *Pass) volume(ctx context.Context, name string) (meta.Volume, error) {
	page, err := p.g.service.ListVolumes(ctx, meta.Caller{}, name, 1)
	if err != nil || len(page) == 0 || page[0].Name != name {
		return meta.Volume{}, err
	}
	return page[0], nil
}

// beginListVolumes makes the service's own listing short where only some volumes are told: then
// they are looked up one by one.
func beginListVolumes(p *Pass, a *meta.Args) error {
	p.from, p.max = a.Name, int(a.Max)
	if !p.rights.Volume(identity.AllVolumes) {
		a.Max = min(a.Max, 1)
	}
	return nil
}

func endListVolumes(ctx context.Context, p *Pass, r *meta.Result) error {
	if !p.rights.Volume(identity.AllVolumes) {
		r.Volumes = nil
		for _, name := range slices.Sorted(slices.Values(p.rights.Volumes)) {
			if name < p.from || len(r.Volumes) == p.max {
				continue
			}
			v, err := p.volume(ctx, name)
			if err != nil {
				return errs.Wrap("meta.ListVolumes", "", err)
			}
			if v.Name != "" {
				r.Volumes = append(r.Volumes, v)
			}
		}
	}
	for i := range r.Volumes {
		r.Volumes[i].Writer = strings.TrimPrefix(r.Volumes[i].Writer, p.prefix)
	}
	return nil
}
