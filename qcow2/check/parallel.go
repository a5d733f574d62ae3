package check

import (
	"context"
	"sync"
)

// ordered calls produce for 0…n-1 on up to workers goroutines and hands the results to consume in order, on the calling
// goroutine. At most 2·workers results wait. The first error of consume, or the end of ctx, stops it.
func ordered[T any](ctx context.Context, n, workers int, produce func(i int) T, consume func(v T) error) error {
	if workers <= 1 || n <= 1 {
		for i := range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := consume(produce(i)); err != nil {
				return err
			}
		}
		return nil
	}
	type job struct {
		i    int
		done chan T
	}
	jobs := make(chan job)
	queue := make(chan chan T, 2*workers)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1 + workers)
	go func() {
		defer wg.Done()
		defer close(jobs)
		defer close(queue)
		for i := range n {
			j := job{i, make(chan T, 1)}
			select {
			case queue <- j.done:
			case <-stop:
				return
			}
			select {
			case jobs <- j:
			case <-stop:
				return
			}
		}
	}()
	for range workers {
		go func() {
			defer wg.Done()
			for j := range jobs {
				j.done <- produce(j.i)
			}
		}()
	}
	defer wg.Wait()
	defer close(stop)
	for done := range queue {
		select {
		case v := <-done:
			if err := consume(v); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}
