package qcow2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"byre/block"
)

// TestManyGoroutinesLeaveWhatEachWrote: 64 goroutines work on neighbouring ranges that share clusters, and on a common
// one where every sector must hold what one of them wrote, while others flush and take and delete snapshots.
func TestManyGoroutinesLeaveWhatEachWrote(t *testing.T) {
	for _, f := range []flavour{
		{"default", CreateOptions{Size: 8 << 20}, false, Options{}},
		{"backing", CreateOptions{Size: 8 << 20}, true, Options{Write: WriteOptions{Discard: true}}},
		{"small clusters", CreateOptions{Size: 4 << 20, ClusterSize: 4096}, true, Options{Write: WriteOptions{Discard: true}}},
		{"extended", CreateOptions{Size: 8 << 20, ExtendedL2: true}, true, Options{Write: WriteOptions{Discard: true}}},
		{"extended, joined", CreateOptions{Size: 8 << 20, ExtendedL2: true}, false, Options{Write: WriteOptions{Dependency: DependencyJoined}}},
		{"joined", CreateOptions{Size: 8 << 20}, false, Options{Write: WriteOptions{Dependency: DependencyJoined, Discard: true}}},
		{"strict", CreateOptions{Size: 8 << 20, ExtendedL2: true}, false, Options{Write: WriteOptions{Dependency: DependencyStrict}}},
		{"lazy", CreateOptions{Size: 8 << 20, LazyRefcounts: true}, true, Options{}},
		{"data file", CreateOptions{Size: 8 << 20, DataFile: "data"}, true, Options{Write: WriteOptions{Discard: true}}},
		{"tiny cache", CreateOptions{Size: 8 << 20, ClusterSize: 4096}, false, Options{CacheSize: 1, L2SliceSize: 512}},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(rounds(1)) {
				var base []byte
				if f.base {
					base = randomBytes(rand.New(rand.NewPCG(9, 9)), f.o.Size*2/3)
				}
				b := newBench(t, f.o, f.open, base)
				c := crowd{b: b, seed: seed, steps: 60}
				if testing.Short() {
					c.steps = 25
				}
				c.run()
				b.verify()
				b.verifySnapshots(b.saved)
				b.close()
				b.checkImage()
				if seed == 0 {
					b.judge()
				}
			}
		})
	}
}

// crowd is many goroutines on one image.
type crowd struct {
	b     *bench
	seed  uint64
	steps int
}

const (
	crowdSize  = 64
	commonSize = 256 << 10 // at the end of the disk, for everybody
)

func (c *crowd) run() {
	b := c.b
	own := (int64(len(b.model)) - commonSize) / crowdSize / 512 * 512
	var work, helpers sync.WaitGroup
	stop := make(chan struct{})
	for i := range int64(crowdSize) {
		work.Add(1)
		go func() {
			defer work.Done()
			if err := c.member(i, i*own+i%3*512, own-2*512); err != nil {
				b.t.Errorf("member %d: %v", i, err)
			}
		}()
	}
	if !b.im.geo.DataFile {
		helpers.Add(1)
		go func() {
			defer helpers.Done()
			c.photographer(stop)
		}()
	}
	work.Wait()
	close(stop)
	helpers.Wait()
	c.common()
}

// member works in [off, off+n) of the disk, which is its own, and in the common range.
func (c *crowd) member(id, off, n int64) error {
	b := c.b
	rnd := rand.New(rand.NewPCG(c.seed, uint64(id)))
	cs := b.im.geo.ClusterSize()
	mine := b.model[off : off+n] // nobody else touches this part
	size := int64(len(b.model))
	for range c.steps {
		k := min(1+rnd.Int64N(20<<10), n)
		if rnd.IntN(2) == 0 {
			k = min((k+511)&^511, n)
		}
		at := rnd.Int64N(n - k + 1)
		switch rnd.IntN(12) {
		case 0:
			if err := b.dev.Zero(b.ctx, off+at, k, []block.Flags{0, block.MayUnmap}[rnd.IntN(2)]); err != nil {
				return err
			}
			clear(mine[at : at+k])
		case 1:
			if err := b.dev.Discard(b.ctx, off+at, k); err != nil {
				return err
			}
			if from, to := (off+at+cs-1)&^(cs-1), (off+at+k)&^(cs-1); from < to {
				clear(b.model[from:to])
			}
		case 2:
			if err := b.dev.Flush(b.ctx); err != nil {
				return err
			}
		case 3, 4, 5: // sectors of the common range, each in one colour
			from := size - commonSize + rnd.Int64N(commonSize/512)*512
			k := min(512*(1+rnd.Int64N(16)), size-from)
			if err := b.dev.Write(b.ctx, bytes.Repeat([]byte{byte(id + 1)}, int(k)), from, 0); err != nil {
				return err
			}
		default:
			p := randomBytes(rnd, k)
			if err := b.dev.Write(b.ctx, p, off+at, []block.Flags{0, 0, 0, block.FUA}[rnd.IntN(4)]); err != nil {
				return err
			}
			copy(mine[at:], p)
		}
		if rnd.IntN(4) == 0 {
			got := make([]byte, n)
			if err := b.dev.Read(b.ctx, got, off); err != nil {
				return err
			}
			if !bytes.Equal(got, mine) {
				return fmt.Errorf("reads other bytes than it wrote")
			}
		}
	}
	return nil
}

// photographer takes snapshots and deletes them until the others are done.
func (c *crowd) photographer(stop <-chan struct{}) {
	b := c.b
	for i := 0; ; i++ {
		name := fmt.Sprint("s", i)
		if _, err := b.im.CreateSnapshot(b.ctx, SnapshotOptions{Name: name}); err != nil {
			b.t.Errorf("snapshot: %v", err)
			return
		}
		select {
		case <-stop:
			return
		default:
		}
		if err := b.im.DeleteSnapshot(b.ctx, "", name); err != nil {
			b.t.Errorf("delete snapshot: %v", err)
			return
		}
	}
}

// common looks at the common range: every sector in one colour, or as it was. The model takes over what is there.
func (c *crowd) common() {
	b := c.b
	from := int64(len(b.model)) - commonSize
	got := make([]byte, commonSize)
	if err := b.dev.Read(b.ctx, got, from); err != nil {
		b.t.Fatal(err)
	}
	for at := 0; at < len(got); at += 512 {
		p := got[at : at+512]
		if !bytes.Equal(p, bytes.Repeat(p[:1], 512)) && !bytes.Equal(p, b.model[from+int64(at):][:512]) {
			b.t.Fatalf("sector %#x of the common range is torn: %x", from+int64(at), p[:16])
		}
	}
	copy(b.model[from:], got)
}
