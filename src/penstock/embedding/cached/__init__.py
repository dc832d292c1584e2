"""Fused tables whose rows live in a store on the host, with those in use on the device."""
