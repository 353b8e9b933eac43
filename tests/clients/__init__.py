"""Programs as users of other servers write them, with clients that know nothing of this kit.

They run in an environment of their own, read a JSON object with the server's addresses and what to
ask from standard input, and print what they got as JSON.
"""
