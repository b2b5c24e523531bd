"""Links and switches of the kernel: veth, HTB, netem, Linux bridges, Open vSwitch."""
