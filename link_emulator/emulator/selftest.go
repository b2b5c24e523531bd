package emulator

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/realtime"
)

// The self-test sends frames through the emulator and back before it serves requests, over a link of 1 ms each way.
const (
	selfTestDelayNS   = int64(1e6)
	selfTestEchoes    = 25
	selfTestWarmup    = 5
	selfTestTries     = 3
	selfTestLateNS    = int64(250e3) // allowed lateness of the median echo
	selfTestTimeoutNS = int64(200e6) // for one echo
)

// selfTest is the result of the self-test. MinNS, MedianNS and MaxNS are round-trip times.
type selfTest struct {
	Passed       bool   `json:"passed"`
	Reason       string `json:"reason"` // of a failure
	Echoes       int    `json:"echoes"`
	ConfiguredNS int64  `json:"configured_ns"`
	MinNS        int64  `json:"min_ns"`
	MedianNS     int64  `json:"median_ns"`
	MaxNS        int64  `json:"max_ns"`
}

// runSelfTest runs the self-test on two devices of its own. It retries, because the machine may be busy for a moment.
func (e *Emulator) runSelfTest() selfTest {
	for try := 1; ; try++ {
		result, err := e.tryEchoes()
		if err != nil {
			return selfTest{Reason: fmt.Sprintf("the self-test could not be carried out: %v", err)}
		}
		if result.judge(); result.Passed || try == selfTestTries {
			return result
		}
	}
}

func (s *selfTest) judge() {
	switch {
	case s.Echoes < selfTestEchoes:
		s.Reason = fmt.Sprintf("of %d echoes only %d came back", selfTestEchoes, s.Echoes)
	case s.MinNS < s.ConfiguredNS:
		s.Reason = fmt.Sprintf("an echo came after %d ns, configured %d", s.MinNS, s.ConfiguredNS)
	case s.MedianNS > s.ConfiguredNS+selfTestLateNS:
		s.Reason = fmt.Sprintf("the median echo came after %d ns, configured %d", s.MedianNS, s.ConfiguredNS)
	}
	s.Passed = s.Reason == ""
}

func (e *Emulator) tryEchoes() (selfTest, error) {
	result := selfTest{ConfiguredNS: 2 * selfTestDelayNS}
	ends, err := e.options.OpenTest(e.options.Unstamped == "")
	if err != nil {
		return result, err
	}
	defer ends[0].Far.Close()
	defer ends[1].Far.Close()
	var ports [2]*loop.Port
	names := [2]string{"self-test a", "self-test b"}
	params := model.Params{DelayNS: selfTestDelayNS}
	link := fabric.LinkSpec{Name: names[0], A: fabric.End{Port: names[0]}, B: fabric.End{Port: names[1]}, AToB: params,
		BToA: params}
	if _, _, err = e.do(func(nowNS int64) (err error) {
		for i, name := range names {
			if ports[i], err = e.loop.Attach(name, defaultMTU, ends[i].Near, -1, func(unix.Errno, int64) {}); err != nil {
				return err
			}
		}
		return e.fabric.AddLink(link, nowNS)
	}); err != nil {
		return result, err
	}
	result.echo(ends)
	if _, _, err = e.do(func(nowNS int64) error {
		e.loop.ResetCounts()
		return cmp.Or(e.fabric.RemoveLink(names[0], nowNS), e.loop.Detach(ports[0]), e.loop.Detach(ports[1]))
	}); err != nil {
		return result, err
	}
	for _, port := range ports {
		<-port.Closed()
	}
	return result, nil
}

// echo plays both hosts, on a thread that is scheduled like the data thread: the test is of the data thread's timing,
// not of its own.
func (s *selfTest) echo(ends [2]device.TestEnd) {
	roundTrips := make([]int64, 0, selfTestEchoes)
	buffer := make([]byte, 2048)
	for i := range selfTestWarmup + selfTestEchoes {
		frame := testFrame(byte(i))
		tookNS := int64(0)
		realtime.Run(1, func() { tookNS = echo(ends, frame, buffer) })
		if tookNS == 0 {
			break
		}
		if i >= selfTestWarmup {
			roundTrips = append(roundTrips, tookNS)
		}
	}
	if s.Echoes = len(roundTrips); s.Echoes > 0 {
		slices.Sort(roundTrips)
		s.MinNS, s.MedianNS, s.MaxNS = roundTrips[0], roundTrips[s.Echoes/2], roundTrips[s.Echoes-1]
	}
}

// echo returns the round-trip time; 0 when the frame did not come back. It busy-waits for the frames, so that only the
// emulator's wake-ups are in the result, and the two writes up to the moment at which the kernel stamps the frame.
func echo(ends [2]device.TestEnd, frame, buffer []byte) int64 {
	sentNS := realtime.Now()
	for i, end := range ends {
		if end.Far.Write(frame) != 0 || !await(ends[1-i].Far, frame, buffer) {
			return 0
		}
	}
	return realtime.Now() - sentNS
}

// testFrame is a broadcast with the local experimental EtherType (IEEE 802), which no stack answers.
func testFrame(number byte) []byte {
	frame := make([]byte, 60)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")
	frame[14] = number
	return frame
}

// await reads until the test frame with the same number arrives; other frames, sent by the kernel, are skipped.
func await(from device.Device, frame, buffer []byte) bool {
	for end := realtime.Now() + selfTestTimeoutNS; realtime.Now() < end; {
		n, errno := from.Read(buffer)
		if errno == 0 && n > 14 && buffer[12] == frame[12] && buffer[13] == frame[13] && buffer[14] == frame[14] {
			return true
		}
	}
	return false
}
