"""Policy identity: everything that decides which token is sampled next, named and hashed."""
