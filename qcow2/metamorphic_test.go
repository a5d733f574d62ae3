package qcow2

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"byre/block"
	"byre/qcow2/check"
	"byre/storage/mem"
)

// defaultWeights is a mixture in which everything happens.
var defaultWeights = [numOps]int{doWrite: 50, doZero: 8, doZeroUnmap: 6, doDiscard: 10, doCompressed: 10, doFlush: 8, doResize: 3, doReopen: 2,
	doSnapshot: 4, doApply: 2, doDelete: 3}

// testBase is the contents of the backing file of a flavour.
func testBase(f flavour) []byte {
	if !f.base {
		return nil
	}
	return randomBytes(rand.New(rand.NewPCG(7, 7)), f.o.Size*3/4+512)
}

// checkImage runs the library's check over the closed image and wants nothing found.
func (b *bench) checkImage() {
	b.t.Helper()
	res, err := check.Run(b.ctx, block.NewDevice(b.img.Clone().Open(mem.Options{})), check.Options{
		Report: func(f *check.Finding) { b.t.Log(f.String()) }})
	if err != nil || !res.Clean() {
		b.t.Fatalf("check: %+v, %v", res, err)
	}
}

// rounds is how many histories each flavour gets: few, unless the environment asks for more.
func rounds(short int) int {
	if n, err := strconv.Atoi(os.Getenv("BYRE_ROUNDS")); err == nil {
		return n
	}
	return short
}

func TestRandomHistoriesLeaveWhatTheModelHas(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(rounds(6)) {
				rnd := rand.New(rand.NewPCG(seed, 11))
				b := newBench(t, f.o, f.open, testBase(f))
				var done []op
				for range 150 {
					o := randomOp(rnd, b, defaultWeights)
					done = append(done, o)
					if err := b.do(o); err != nil {
						t.Fatalf("seed %d: %v: %v\nhistory: %v", seed, o, err, done)
					}
					if t.Failed() {
						t.Fatalf("seed %d\nhistory: %v", seed, done)
					}
					if rnd.IntN(16) == 0 {
						b.verify()
					}
				}
				b.verify()
				b.verifySnapshots(b.saved)
				b.close()
				b.checkImage()
				if seed == 0 {
					b.judge()
				}
				b.reopen()
				b.verify()
				b.verifySnapshots(b.saved)
				b.close()
			}
		})
	}
}
