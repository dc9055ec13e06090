"""How each kind of object store is reached and who asks, in the words of ``obstore``: a module each. Pure."""
