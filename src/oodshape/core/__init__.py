"""The base of all packages; independent of images and networks.

`errors` has the error type that users see, `values` frozen values that print, compare and save, `files` files that are
written atomically with a checksum. `options` declares the options of verbs and commands. `machine` knows cores, the
cache folder and locks; `user_code` imports code of the user; `text` and `progress` print.
"""
