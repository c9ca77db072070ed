"""Tensors of other processes: serving them, and attaching to programs that do.

`serve` is the program's side. On the other side, `servers` finds connection files, a `client`
exchanges messages with one server, and a `session` keeps one connected. `server_connection` shows
what a server publishes; `joint_connection` shows several as one, whose `parts` of an array are put
together in `joint_tensor`.
"""
