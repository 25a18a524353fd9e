"""Ways to serve the host's application: an address of its own, or a place in a service of yours."""

from retinue.host.request_limits import RequestLimits
from retinue.server.mounting import AccessToken, asgi_app

__all__ = ["AccessToken", "RequestLimits", "asgi_app"]
