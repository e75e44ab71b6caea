"""`kvproof prove --code`: the functions of a server's source against the rules, whether it is installed, a folder or a commit."""
