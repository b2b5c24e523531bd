"""What people look at: the page that `report` writes, and the figures that `plot` draws.

Everything up to `document` is plain data that any program could print; `page` alone knows HTML, `paper` matplotlib.
"""
