"""Links between the nodes of a network: what is asked of them and the implementations that carry it out."""
