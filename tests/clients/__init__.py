"""Programs as users of other servers write them, with clients that do not know this kit.

They run in a separate environment, read a JSON object with the server's addresses and the requests
from standard input, and print the answers as JSON.
"""
