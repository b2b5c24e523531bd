"""What a run uses of its machine: counters of the kernel, sampled and differenced; profiles of a member."""
