package loop

// BehindNS for the tests in simulated time.
const BehindNS = behindNS
