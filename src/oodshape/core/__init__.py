"""What everything stands on, and what knows nothing of images or networks.

`errors`: the one error type that users see. `values`: frozen values that print, compare and save. `fields`: what their
fields may hold. `files`: our files, written whole or not at all, with a checksum. `reading`: what goes wrong in a file,
as that error. `fingerprint`: short names for content. `machine`: cores, cache folder, locks.
`progress`: bars on a terminal.
"""
