package qcow2

import (
	"context"
	"slices"

	"byre/block"
	"byre/qcow2/layout"
)

// Staged entries: an entry of an L1 table can be changed in memory first, when everybody is to see it but what it
// points to is not durable yet, and be written later (see ordering). A page with staged entries stays in memory.

// stage sets entry i in memory.
func (t *table) stage(ctx context.Context, i int64, v uint64) error {
	k := i / pageWords
	for {
		p, err := t.page(ctx, k)
		if err != nil {
			return err
		}
		t.mu.Lock()
		if t.pages[k].Load() != p { // given up in between
			t.mu.Unlock()
			continue
		}
		if t.staged == nil {
			t.staged = make(map[int64]struct{})
		}
		if _, ok := t.staged[i]; !ok {
			t.staged[i] = struct{}{}
			p.staged++
		}
		p.words[i%pageWords].Store(v)
		t.mu.Unlock()
		return nil
	}
}

// page returns page k, loaded if need be.
func (t *table) page(ctx context.Context, k int64) (*tablePage, error) {
	if p := t.pages[k].Load(); p != nil {
		return p, nil
	}
	return t.fetch(ctx, k)
}

// stagedEntries lists the staged entries, ascending.
func (t *table) stagedEntries() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.staged) == 0 {
		return nil
	}
	list := make([]int64, 0, len(t.staged))
	for i := range t.staged {
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}

// writeStaged writes the staged entries of list, neighbours together. What is written is no longer staged, unless it
// was staged anew meanwhile. check is asked before each write.
func (t *table) writeStaged(ctx context.Context, list []int64, check func(off layout.HostOffset, n int64) error) error {
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[n-1]+1 {
			n++
		}
		if err := t.writeStagedRun(ctx, list[:n], check); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func (t *table) writeStagedRun(ctx context.Context, run []int64, check func(off layout.HostOffset, n int64) error) error {
	buf := make([]byte, 8*len(run))
	for k, i := range run {
		v, _ := t.peek(i)
		layout.PutWord(buf, k, v)
	}
	off := t.off + layout.HostOffset(8*run[0])
	if err := t.file.Event(ctx, block.EventL1Update); err != nil {
		return err
	}
	if err := check(off, int64(len(buf))); err != nil {
		return err
	}
	if err := t.file.Write(ctx, buf, int64(off), 0); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, i := range run {
		p := t.pages[i/pageWords].Load()
		if _, ok := t.staged[i]; ok && p.words[i%pageWords].Load() == layout.Word(buf, k) {
			delete(t.staged, i)
			p.staged--
		}
	}
	return nil
}

// restage makes entry i, whose page must be in memory, staged again: it may or may not have reached the file.
func (t *table) restage(i int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.staged[i]; ok {
		return
	}
	if p := t.pages[i/pageWords].Load(); p != nil {
		t.staged[i] = struct{}{}
		p.staged++
	}
}
