"""A script of the shape that Containernet's users write; only the import of Containernet is ours."""

import sys

# In the order of Containernet's own examples.
from containernet_env.containernet.network import Containernet  # ruff: isort: skip
from mininet.cli import CLI
from mininet.link import TCLink
from mininet.log import info, setLogLevel
from mininet.node import Controller

setLogLevel("info")
image = sys.argv[1]

net = Containernet(controller=Controller)
info("*** Adding controller\n")
net.addController("c0")
info("*** Adding docker containers\n")
d1 = net.addDocker("d1", ip="10.0.0.251", dimage=image)
d2 = net.addDocker("d2", ip="10.0.0.252", dimage=image)
info("*** Adding switches\n")
s1 = net.addSwitch("s1")
s2 = net.addSwitch("s2")
info("*** Creating links\n")
net.addLink(d1, s1)
net.addLink(s1, s2, cls=TCLink, delay="100ms", bw=1)
net.addLink(s2, d2)
info("*** Starting network\n")
net.start()
info("*** Testing connectivity\n")
net.ping([d1, d2])
info("*** Running CLI\n")
CLI(net)
if "fail" in sys.argv:
    raise SystemExit(5)
info("*** Stopping network\n")
net.stop()
