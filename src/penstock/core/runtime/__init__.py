"""Threads, forks and memory that is used again: the one place where they are made, so that one place knows the rules.

- `threads`: named threads and pools, and how many of them by default.
- `forks`: what is left of them in a forked child.
- `buffers`: memory that is handed out again when nobody refers to it any more.

Nothing waits inside the garbage collector: it may run between any two lines of any thread, so a finalizer tells threads
to stop and never joins them. Threads are daemons, and pools end by themselves when nobody knows them any more.
"""
