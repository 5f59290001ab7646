package fluxgate

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	// maxRenewed is how many holds the service renews in one call.
	maxRenewed = 1000
	// repeatAfter is how long to wait before an ending that failed is tried again.
	repeatAfter = 250 * time.Millisecond
	// maxEndings bounds the endings that wait. Further holds expire by themselves.
	maxEndings = 10_000
	// lookEvery is how often the keeper looks whether there is still something to do.
	lookEvery = time.Second
)

// holdKeeper renews the open holds of a client, and repeats settlements and releases that failed.
// Its goroutine runs only while there is something to do. Its calls pass the circuit by: they are
// few, and nothing waits for them.
type holdKeeper struct {
	client *Client
	// wake interrupts the sleep if something is due earlier.
	wake chan struct{}

	mu        sync.Mutex
	open      map[*Hold]struct{}
	endings   []ending
	endAt     time.Time
	isRunning bool
}

// ending is a call that ends a hold.
type ending struct {
	path      string
	body      []byte
	expiresAt time.Time
}

// add renews a hold from now on, every third of its time.
func (k *holdKeeper) add(hold *Hold) {
	span := hold.decision.HoldFor
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	hold.renewAt, hold.expiresAt = now.Add(span/3), now.Add(span)
	if k.open == nil {
		k.open = make(map[*Hold]struct{})
	}
	k.open[hold] = struct{}{}
	k.start(span/3 < lookEvery)
}

func (k *holdKeeper) remove(hold *Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, hold)
}

// postpone takes note of a renewal by hand.
func (k *holdKeeper) postpone(hold *Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, span := time.Now(), hold.decision.HoldFor
	hold.renewAt, hold.expiresAt = now.Add(span/3), now.Add(span)
}

// endLater ends a hold in the background, after a while.
func (k *holdKeeper) endLater(ending ending, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.endings) >= maxEndings {
		return
	}
	if len(k.endings) == 0 {
		k.endAt = time.Now().Add(after)
	}
	k.endings = append(k.endings, ending)
	k.start(true)
}

// start starts the goroutine, or wakes it up. The caller holds mu.
func (k *holdKeeper) start(isUrgent bool) {
	switch {
	case !k.isRunning:
		k.isRunning = k.client.goBackground(k.run)
	case isUrgent:
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *holdKeeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.client.closed:
			return
		case <-k.wake:
		case <-timer.C:
		}
		for _, due := range k.due() {
			k.renew(due)
		}
		k.endDue()
		pause, isNeeded := k.pause()
		if !isNeeded {
			return
		}
		timer.Reset(pause)
	}
}

// pause returns how long nothing is due, or false if there is nothing left to do.
func (k *holdKeeper) pause() (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.open) == 0 && len(k.endings) == 0 {
		k.isRunning = false
		return 0, false
	}
	next := time.Now().Add(lookEvery)
	if len(k.endings) > 0 && k.endAt.Before(next) {
		next = k.endAt
	}
	for hold := range k.open {
		if hold.renewAt.Before(next) {
			next = hold.renewAt
		}
	}
	return max(time.Until(next), time.Millisecond), true
}

// due returns the holds to renew, those of one time together. Holds that are nearly due are among
// them, so that holds of the same time come to be renewed in one call.
func (k *holdKeeper) due() [][]*Hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	isDue := make(map[time.Duration]bool)
	for hold := range k.open {
		if !hold.expiresAt.After(now) {
			delete(k.open, hold)
			k.client.log().Warn("the hold of a running request has expired", "rule", hold.decision.Rule)
		} else if !hold.renewAt.After(now) {
			isDue[hold.decision.HoldFor] = true
		}
	}
	var groups [][]*Hold
	for span := range isDue {
		var group []*Hold
		for hold := range k.open {
			if hold.decision.HoldFor == span && !hold.renewAt.After(now.Add(span/6)) {
				group = append(group, hold)
			}
		}
		for len(group) > maxRenewed {
			groups = append(groups, group[:maxRenewed])
			group = group[maxRenewed:]
		}
		groups = append(groups, group)
	}
	return groups
}

// renew renews holds of the same time in one call.
func (k *holdKeeper) renew(holds []*Hold) {
	span := holds[0].decision.HoldFor
	ids := make([]string, len(holds))
	for i, hold := range holds {
		ids[i] = hold.id
	}
	body := struct {
		Holds   []string `json:"holds"`
		HoldFor string   `json:"hold_for"`
	}{ids, holdText(span)}
	var result struct {
		Renewed []bool `json:"renewed"`
	}
	began := time.Now()
	answer, err := k.send(renewPath, encode(body))
	isDone := err == nil && answer.status == http.StatusOK &&
		json.Unmarshal(answer.body, &result) == nil && len(result.Renewed) == len(holds)

	k.mu.Lock()
	defer k.mu.Unlock()
	for i, hold := range holds {
		if _, isOpen := k.open[hold]; !isOpen {
			continue
		}
		switch {
		case !isDone:
			hold.renewAt = time.Now().Add(max(span/12, 50*time.Millisecond))
		case result.Renewed[i]:
			hold.renewAt, hold.expiresAt = began.Add(span/3), began.Add(span)
		default:
			delete(k.open, hold)
			k.client.log().Warn("the hold of a running request has expired", "rule", hold.decision.Rule)
		}
	}
}

// endDue ends the holds that wait for it, until one fails.
func (k *holdKeeper) endDue() {
	for {
		k.mu.Lock()
		now := time.Now()
		for len(k.endings) > 0 && !k.endings[0].expiresAt.After(now) {
			k.endings = k.endings[1:]
		}
		if len(k.endings) == 0 || k.endAt.After(now) {
			k.mu.Unlock()
			return
		}
		first := k.endings[0]
		k.mu.Unlock()

		answer, err := k.send(first.path, first.body)
		hasAnswered := err == nil && (answer.status == http.StatusOK || isRejection(answer.status))
		k.mu.Lock()
		if hasAnswered {
			k.endings = k.endings[1:]
		} else {
			k.endAt = time.Now().Add(repeatAfter)
		}
		k.mu.Unlock()
	}
}

func (k *holdKeeper) send(path string, body []byte) (*answer, error) {
	return k.client.send(context.Background(), call{path: path, body: body, until: k.client.deadlineFromNow()})
}
