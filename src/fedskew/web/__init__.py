"""The dashboard: a read-only window on a store, served on loopback. A door: it reads, it asks other rooms, it draws."""
