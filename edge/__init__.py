"""Edge: the ground under every floor. What serves requests in front of Django is made of it: plain
ASGI, problems, connections, and no models.
"""
