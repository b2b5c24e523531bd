"""etcd behind a proxy of the user's, which lets it be spoken to as another store."""
