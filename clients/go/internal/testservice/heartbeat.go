package testservice

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Handovers is how many threads take part in a call one after another: of the client, the proxy and
// the service. A busy machine may delay each of them.
const Handovers = 6

const beat = time.Millisecond

// heart measures how late goroutines wake up. A test that bounds a time adds what the machine, and
// not the client, has delayed in the same interval.
var heart struct {
	start  sync.Once
	mu     sync.Mutex
	last   [2]time.Time
	pauses []pause
}

type pause struct {
	end  time.Time
	span time.Duration
}

// startHeart starts the measurement, which lasts as long as the process.
func startHeart() {
	heart.start.Do(func() {
		for i := range heart.last {
			heart.last[i] = time.Now()
			go func() {
				for {
					time.Sleep(beat)
					heart.mu.Lock()
					now := time.Now()
					late := now.Sub(heart.last[i]) - beat
					heart.last[i] = now
					if late > beat {
						heart.pauses = append(heart.pauses, pause{now, late})
					}
					heart.mu.Unlock()
				}
			}()
		}
	})
}

// LongestPause returns how late a goroutine woke up at worst since then.
func LongestPause(since time.Time) time.Duration {
	heart.mu.Lock()
	defer heart.mu.Unlock()
	var longest time.Duration
	for i := len(heart.pauses) - 1; i >= 0 && heart.pauses[i].end.After(since); i-- {
		longest = max(longest, heart.pauses[i].span)
	}
	for _, last := range heart.last {
		if !last.IsZero() {
			longest = max(longest, time.Since(last)-beat)
		}
	}
	return longest
}

// Allowance returns by how much a call that began then may have been delayed.
func Allowance(since time.Time) time.Duration { return Handovers * LongestPause(since) }

// Fail fails a test, or skips it if the machine has paused for so long that something that has to
// happen within shortest cannot be judged.
func Fail(t testing.TB, since time.Time, shortest time.Duration, failure ...any) {
	t.Helper()
	if pause := LongestPause(since); Handovers*pause > shortest {
		t.Skipf("the machine paused for %v: %s", pause.Round(time.Millisecond), fmt.Sprint(failure...))
	}
	t.Fatal(failure...)
}
