"""Following a run or a sweep while it goes on: from the files that it leaves, on a page of this machine."""
