package emulator

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
)

// The self-test: frames go through the emulator and back before it is given any work, over a link of one millisecond each way.
const (
	selfTestDelayNS   = int64(1e6)
	selfTestEchoes    = 25
	selfTestWarmup    = 5
	selfTestTries     = 3
	selfTestLateNS    = int64(250e3) // the median echo may be so late,
	selfTestEarlyNS   = int64(20e3)  // and none may be earlier than this
	selfTestTimeoutNS = int64(200e6) // for one echo
)

// SelfTest is how the echo of the self-test went. MinNS, MedianNS and MaxNS are round trips, AskedNS is what they should be.
type SelfTest struct {
	Passed                          bool
	Reason                          string // why not
	Echoes                          int
	AskedNS, MinNS, MedianNS, MaxNS int64
}

// SelfTest is the result of the self-test at start.
func (e *Emulator) SelfTest() SelfTest { return e.selfTest }

// Latencies of the machine as measured lately.
func (e *Emulator) Latencies() (latencies loop.Latencies) {
	e.loop.Do(func(int64) { latencies = e.loop.Latencies() })
	return latencies
}

// runSelfTest tests the emulator on two devices of its own. A machine that is busy for a moment gets another chance.
func (e *Emulator) runSelfTest(open func() ([2]device.TestEnd, error)) SelfTest {
	for try := 1; ; try++ {
		result, err := e.tryEchoes(open)
		if err != nil {
			return SelfTest{Reason: fmt.Sprintf("the self-test could not be carried out: %v", err)}
		}
		if result.judge(); result.Passed || try == selfTestTries {
			return result
		}
	}
}

func (s *SelfTest) judge() {
	switch {
	case s.Echoes < selfTestEchoes:
		s.Reason = fmt.Sprintf("of %d echoes only %d came back", selfTestEchoes, s.Echoes)
	case s.MinNS < s.AskedNS-selfTestEarlyNS:
		s.Reason = fmt.Sprintf("an echo came after %d ns, asked for %d", s.MinNS, s.AskedNS)
	case s.MedianNS > s.AskedNS+selfTestLateNS:
		s.Reason = fmt.Sprintf("the median echo came after %d ns, asked for %d", s.MedianNS, s.AskedNS)
	}
	s.Passed = s.Reason == ""
}

func (e *Emulator) tryEchoes(open func() ([2]device.TestEnd, error)) (SelfTest, error) {
	result := SelfTest{AskedNS: 2 * selfTestDelayNS}
	ends, err := open()
	if err != nil {
		return result, err
	}
	defer ends[0].Far.Close()
	defer ends[1].Far.Close()
	var ports [2]*loop.Port
	names := [2]string{"self-test a", "self-test b"}
	params := model.Params{DelayNS: selfTestDelayNS}
	e.loop.Do(func(nowNS int64) {
		for i, name := range names {
			if ports[i], err = e.loop.Attach(name, defaultMTU, ends[i].Near, -1, func(unix.Errno, int64) {}); err != nil {
				return
			}
		}
		err = e.fabric.AddLink(names[0], fabric.End{Port: names[0]}, fabric.End{Port: names[1]}, params, params, nowNS)
	})
	if err != nil {
		return result, err
	}
	echoErr := result.echo(ends)
	e.loop.Do(func(nowNS int64) {
		if err = e.fabric.RemoveLink(names[0], nowNS); err != nil {
			return
		}
		for _, port := range ports {
			if err = e.loop.Detach(port); err != nil {
				return
			}
		}
		e.loop.ResetCounts()
	})
	if err != nil {
		return result, err
	}
	for _, port := range ports {
		<-port.Closed()
	}
	return result, echoErr
}

// echo plays both hosts, on a thread that is disturbed as little as the one that is tested: what is to be found out is whether that one keeps its times.
func (s *SelfTest) echo(ends [2]device.TestEnd) error {
	roundTrips := make([]int64, 0, selfTestEchoes)
	buffer := make([]byte, 2048)
	for i := range selfTestWarmup + selfTestEchoes {
		frame := testFrame(byte(i))
		tookNS := int64(0)
		if err := loop.Urgently(func() { tookNS = echo(ends, frame, buffer) }); err != nil {
			return err
		}
		if tookNS == 0 {
			break
		}
		if i >= selfTestWarmup {
			roundTrips = append(roundTrips, tookNS)
		}
	}
	if s.Echoes = len(roundTrips); s.Echoes == 0 {
		return nil
	}
	slices.Sort(roundTrips)
	s.MinNS, s.MedianNS, s.MaxNS = roundTrips[0], roundTrips[s.Echoes/2], roundTrips[s.Echoes-1]
	return nil
}

// echo returns how long one took; 0 when it did not come back. It looks for the frames without sleeping, so that only the emulator's wake-ups are in the
// result.
func echo(ends [2]device.TestEnd, frame, buffer []byte) int64 {
	sentNS := clock.Now()
	if ends[0].Far.Write(frame) != 0 || !await(ends[1].Far, frame, buffer) {
		return 0
	}
	turnedNS := clock.Now()
	if ends[1].Far.Write(frame) != 0 {
		return 0
	}
	turnNS := clock.Now() - turnedNS // writing the answer is this thread's time, not the network's
	if !await(ends[0].Far, frame, buffer) {
		return 0
	}
	return clock.Now() - sentNS - turnNS
}

// testFrame is a broadcast of the local experimental type (IEEE 802), which no stack answers.
func testFrame(number byte) []byte {
	frame := make([]byte, 60)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")
	frame[14] = number
	return frame
}

// await reads until a frame of the test comes with the number of one; what else the kernel sends is passed over.
func await(from device.Device, frame, buffer []byte) bool {
	for end := clock.Now() + selfTestTimeoutNS; clock.Now() < end; {
		n, errno := from.Read(buffer)
		if errno == 0 && n > 14 && buffer[12] == frame[12] && buffer[13] == frame[13] && buffer[14] == frame[14] {
			return true
		}
	}
	return false
}
