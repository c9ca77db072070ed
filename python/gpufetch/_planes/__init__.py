"""What plots and the viewer read of a tensor: boxes of planes, ranges of samples, in few cells."""
