package fluxgate

import (
	"sync"
	"time"
)

const (
	// maxFailures is how many failures in a row open the circuit.
	maxFailures = 3
	// openFor is how long no call is made then.
	openFor = 500 * time.Millisecond
)

// circuit stops calls to a service that fails, because each of them would cost its deadline.
type circuit struct {
	mu       sync.Mutex
	failures int
	// until is when to try again, if there are too many failures.
	until time.Time
	// isProbing is set while a call tries the service again.
	isProbing bool
}

// verdict is how a call ended.
type verdict int

const (
	succeeded verdict = iota
	failed
	// undecided: the caller gave up first, which says nothing about the service.
	undecided
)

// enter returns a function to report the end of a call with, or false if it must not be made.
func (c *circuit) enter() (func(verdict), bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures < maxFailures {
		return c.leave, true
	}
	if c.isProbing || time.Now().Before(c.until) {
		return nil, false
	}
	c.isProbing = true
	return c.leaveProbe, true
}

func (c *circuit) leave(how verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch how {
	case succeeded:
		c.failures = 0
	case failed:
		// Calls that began before the circuit opened do not keep it open for longer.
		if c.failures < maxFailures {
			c.fail()
		}
	}
}

func (c *circuit) leaveProbe(how verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isProbing = false
	switch how {
	case succeeded:
		c.failures = 0
	case failed:
		c.fail()
	}
}

func (c *circuit) fail() {
	c.failures++
	c.until = time.Now().Add(openFor)
}
