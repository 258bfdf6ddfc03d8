"""Run scim2-tester, in its own environment, against an address with a token; writes JSON."""

import json
import sys

from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import check_server

address, token = sys.argv[1:]
with Client(
    base_url=address, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
) as http:
    results = check_server(SyncSCIMClient(http))
json.dump([[one.status.name, one.title, str(one.reason)] for one in results], sys.stdout)
