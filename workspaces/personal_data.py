"""What this floor holds: accounts and keys of members, which are removed otherwise."""

from workspaces.erasure_registry import keeps

MEMBERS = "of members and machines, not of those on whose behalf agents act"

keeps("workspaces.Workspace", "slug", "name", "timezone", "mask", "masking_key", because=MEMBERS)
keeps("workspaces.User", "password", "email", "name", "timezone", because=MEMBERS)
keeps("workspaces.Team", "name", because=MEMBERS)
keeps("workspaces.Membership", "sponsors", because="ids of members")
keeps("workspaces.DirectoryToken", "name", "prefix", "digest", because=MEMBERS)
keeps("workspaces.DirectoryPerson", "scim_id", "user_name", "external_id", "document",
      because=MEMBERS)  # fmt: skip
keeps("workspaces.DirectoryGroup", "scim_id", "external_id", "renamed", "members", because=MEMBERS)
keeps("workspaces.LoginProvider", "provider_id", "name", "issuer", "client_id", "groups_claim",
      "places", "domains", because=MEMBERS)  # fmt: skip
keeps("workspaces.Delegation", "reason", "end", because=MEMBERS)
keeps("workspaces.Invitation", "email", "digest", because=MEMBERS)
keeps("workspaces.SetupLink", "digest", because=MEMBERS)
keeps("workspaces.Act", "type", "data", because=f"{MEMBERS}; taken in, then let go by age")
keeps("workspaces.Heartbeat", "name", "last_error", because="of a loop of ours")
keeps("workspaces.Agent", "name", "description", because=MEMBERS)
keeps("workspaces.APIKey", "name", "prefix", "digest", "scopes", because=MEMBERS)
keeps("workspaces.PersonToken", "name", "prefix", "digest", because=MEMBERS)
keeps("workspaces.Secret", "name", "account", "sealed",
      because="encrypted, of outside systems; requests of agents go with their run")  # fmt: skip
