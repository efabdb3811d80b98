"""The reward service: any scorer behind HTTP, so that trainers on other machines and in other frameworks can ask it."""
