"""One module for each published layout.

Each lists the pairs that its folders speak of: a frame, a mask or a truth that is named by another
file's presence but is not there itself stays in the list, so that it can be reported.
"""
