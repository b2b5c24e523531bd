package spec

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ParseEndpoints splits a comma-separated list of host:port, in order. It refuses what could only be a
// mistake: an empty list or entry, a scheme, a port outside 1..65535, an address like 10.0.0.999, the same
// endpoint twice.
func ParseEndpoints(text string) ([]string, error) {
	if text == "" {
		return nil, fmt.Errorf("the list is empty")
	}
	endpoints := strings.Split(text, ",")
	if err := checkEndpoints(endpoints); err != nil {
		return nil, err
	}
	return endpoints, nil
}

// JoinEndpoints is the inverse of ParseEndpoints.
func JoinEndpoints(endpoints []string) string { return strings.Join(endpoints, ",") }

func checkEndpoints(endpoints []string) error {
	if len(endpoints) == 0 {
		return fmt.Errorf("the list is empty")
	}
	if len(endpoints) > MaxEndpoints {
		return fmt.Errorf("%d endpoints, at most %d are allowed", len(endpoints), MaxEndpoints)
	}
	seen := make(map[string]bool, len(endpoints))
	for _, endpoint := range endpoints {
		if err := checkEndpoint(endpoint); err != nil {
			return err
		}
		if seen[endpoint] {
			return fmt.Errorf("%.100q stands in the list twice", endpoint)
		}
		seen[endpoint] = true
	}
	return nil
}

func checkEndpoint(endpoint string) error {
	if strings.Contains(endpoint, "://") {
		return fmt.Errorf("%.100q has a scheme: endpoints are written host:port, and a CA asks for TLS", endpoint)
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fmt.Errorf("%.100q is not host:port", endpoint)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || port[0] == '+' || port[0] == '0' {
		return fmt.Errorf("%.100q has the port %.100q, allowed is 1..65535", endpoint, port)
	}
	if strings.Contains(host, ":") || strings.Trim(host, "0123456789.") == "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return fmt.Errorf("%.100q does not start with a valid IP address", endpoint)
		}
		return nil
	}
	return checkHostName(endpoint, host)
}

// checkHostName follows RFC 1123 section 2.1, with the underscore that container names may hold.
func checkHostName(endpoint, host string) error {
	if len(host) > 253 {
		return fmt.Errorf("%.100q has a host name of %d characters, at most 253 are allowed", endpoint, len(host))
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%.100q does not start with a valid host name", endpoint)
		}
		for _, c := range label {
			isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !isLetter && (c < '0' || c > '9') && c != '-' && c != '_' {
				return fmt.Errorf("%.100q does not start with a valid host name", endpoint)
			}
		}
	}
	return nil
}
