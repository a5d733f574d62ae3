//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// onUserSignal calls f at each SIGUSR1 until stop.
func onUserSignal(f func()) (stop func()) {
	signals, quit := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-signals:
				f()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-ended
	}
}
