package volumeexport

import (
	"context"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/nbd"
)

// clusterOf is a cluster that a client.FS has reached.
type clusterOf struct {
	fs  *client.FS
	way client.How
}

func (c clusterOf) open(ctx context.Context, name string, o client.VolumeOptions) (
	volumeFile, client.Volume, error) {
	f, v, err := c.fs.OpenVolumeWith(ctx, name, o)
	if err != nil {
		return nil, v, err
	}
	f.SetHow(c.way)
	return f, v, nil
}

func (c clusterOf) await(ctx context.Context, name string, seen client.VolumeState) (
	client.Volume, error) {
	return c.fs.AwaitVolume(ctx, name, seen)
}

func (c clusterOf) handOver(ctx context.Context, name string, force bool) (client.Volume, error) {
	return c.fs.HandOverVolume(ctx, name, force)
}

func (c clusterOf) buffer(bytes int) nbd.Buffer {
	if b := c.fs.TryTake(bytes); b != nil {
		return b
	}
	return nil
}

// Ended tells whether the volume was given up or lost.
func (v *Volume) Ended() bool { return v.over.Load() }

// given is the answer to every request behind that.
func (v *Volume) given() error {
	return errs.Newf(errs.Shutdown, "volumeexport", v.text, "another gateway has it")
}

// judge turns the error of a writer that was taken over from into what clients understand: the
// device is not to be had here any more.
func (v *Volume) judge(err error) error {
	if errs.KindOf(err) != errs.Fenced {
		return err
	}
	if !v.over.Swap(true) {
		v.log.Warn("another gateway has taken the volume over", "volume", v.name, "err", err)
		go v.lose()
	}
	return errs.New(errs.Shutdown, "volumeexport", v.text, err)
}

// lose ends the use of a volume that somebody else has by now.
func (v *Volume) lose() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return
	}
	v.gone = true
	v.over.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	_ = v.file.Close(ctx) // what it had is refused everywhere
}

// watch follows what becomes of the volume until the export is closed.
func (v *Volume) watch(ctx context.Context, seen client.VolumeState) {
	defer close(v.ended)
	for ctx.Err() == nil && !v.over.Load() {
		now, err := v.in.await(ctx, v.name, seen)
		if err != nil {
			// The service is away, or the volume is gone, which its requests find out.
			if !wait.Sleep(ctx, watchPause) {
				return
			}
			continue
		}
		seen = now.State()
		v.heed(ctx, &now)
	}
}

// heed does what a change of the volume asks for.
func (v *Volume) heed(ctx context.Context, now *client.Volume) {
	v.mu.RLock()
	f, writes := v.file, v.writes && !v.gone
	v.mu.RUnlock()
	if now.Size > v.size.Load() {
		f.Grow(now.Size)
		v.size.Store(now.Size)
		v.log.Info("the volume has grown; clients that connect anew see it", "volume", v.name,
			"bytes", now.Size)
	}
	switch {
	case !writes:
	case f.Epoch() < now.First:
		if !v.over.Swap(true) {
			v.log.Warn("another gateway has taken the volume over", "volume", v.name)
		}
		v.lose()
	case now.Asked:
		v.giveUp(ctx)
	}
}

// giveUp hands the volume over: requests that are under way end, what they wrote becomes durable,
// and the volume is free. Requests that come meanwhile wait, and hear that it is gone.
func (v *Volume) giveUp(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return
	}
	v.log.Info("handing the volume over", "volume", v.name)
	if err := v.file.Sync(ctx); err != nil && errs.KindOf(err) != errs.Fenced {
		// Nobody else may have it before what was acknowledged is durable: it stays here.
		v.log.Warn("the volume cannot be handed over, because it cannot be synced",
			"volume", v.name, "err", err)
		return
	}
	v.gone = true
	v.over.Store(true)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeMax)
	defer cancel()
	if err := v.file.Close(end); err != nil {
		v.log.Warn("closing a volume that was handed over", "volume", v.name, "err", err)
	}
}

// take makes a gateway that stands by the one that writes: it asks the other one to hand over.
func (v *Volume) take(ctx context.Context) error {
	if v.opt.ReadOnly {
		return errs.New(errs.ReadOnly, "volumeexport", v.text, nil)
	}
	v.taking.Lock()
	defer v.taking.Unlock()
	v.mu.RLock()
	done := v.writes || v.gone
	v.mu.RUnlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, v.opt.TakeMax)
	defer cancel()
	f, err := v.takeOver(ctx)
	if err != nil {
		return errs.Wrap("volumeexport.take", v.name, err)
	}
	v.mu.Lock()
	old := v.file
	v.file, v.writes = f, true
	v.mu.Unlock()
	v.log.Info("the volume was taken over", "volume", v.name, "generation", f.Epoch())
	return old.Close(context.WithoutCancel(ctx))
}

func (v *Volume) takeOver(ctx context.Context) (volumeFile, error) {
	for {
		f, vol, err := v.in.open(ctx, v.name, v.how(false))
		if err == nil {
			f.Grow(v.size.Load())
			if vol.Size > v.size.Load() {
				v.size.Store(vol.Size)
			}
			return f, nil
		}
		if errs.KindOf(err) != errs.Busy {
			return nil, err
		}
		now, err := v.in.handOver(ctx, v.name, false)
		if err == nil && now.Writer != "" {
			now, err = v.in.await(ctx, v.name, now.State())
		}
		if err != nil {
			return nil, err
		}
	}
}
