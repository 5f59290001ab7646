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
	// beat is the goroutine that was late.
	beat int
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
						heart.pauses = append(heart.pauses, pause{i, now, late})
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

// stalled returns how late a goroutine woke up since then, in all.
func stalled(since time.Time) time.Duration {
	heart.mu.Lock()
	defer heart.mu.Unlock()
	var sums [len(heart.last)]time.Duration
	for i := len(heart.pauses) - 1; i >= 0 && heart.pauses[i].end.After(since); i-- {
		pause := heart.pauses[i]
		sums[pause.beat] += min(pause.span, pause.end.Sub(since))
	}
	for i, last := range heart.last {
		if !last.IsZero() {
			sums[i] += max(0, min(time.Since(last)-beat, time.Since(since)))
		}
	}
	return max(sums[0], sums[1])
}

// Delay measures what the machine delays: this process, and a service.
type Delay struct {
	since   time.Time
	service *Service
	waits   map[string]time.Duration
}

// StartDelay starts to measure.
func StartDelay(service *Service) *Delay {
	return &Delay{time.Now(), service, service.waits()}
}

// Total returns for how long a goroutine that only sleeps was late, or a thread of the service has
// waited for a processor.
func (d *Delay) Total() time.Duration {
	total := stalled(d.since)
	for thread, wait := range d.service.waits() {
		total = max(total, wait-d.waits[thread])
	}
	return total
}

// Fail fails a test, or skips it if the machine has delayed it for longer than it bears: for so long
// that something that has to happen in time cannot have happened.
func (d *Delay) Fail(t testing.TB, bears time.Duration, failure ...any) {
	t.Helper()
	if delay := d.Total(); delay > bears {
		t.Skipf("the machine delayed it for %v, it bears %v: %s", delay.Round(time.Millisecond), bears, fmt.Sprint(failure...))
	}
	t.Fatal(failure...)
}
