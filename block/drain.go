package block

import "context"

// InFlight is the number of requests that have entered and not ended, waiting ones included.
func (d *Device) InFlight() (n int) {
	for i := range d.track.shards {
		s := &d.track.shards[i]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}

// Quiesce waits until nothing is in flight and holds off everything new until resume is called, once. Requests that
// arrived before are served first.
func (d *Device) Quiesce(ctx context.Context) (resume func(), err error) {
	r := d.request()
	if err := r.enterMarked(ctx, 0, infinity, true, false); err != nil {
		r.release()
		return nil, err
	}
	d.flush.waitIdle()
	return func() {
		r.leave()
		r.release()
	}, nil
}

// Drain waits until everything that is in flight now has ended.
func (d *Device) Drain(ctx context.Context) error {
	resume, err := d.Quiesce(ctx)
	if err == nil {
		resume()
	}
	return err
}
