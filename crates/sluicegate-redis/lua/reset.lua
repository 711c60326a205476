-- Forgets a key: its states and its receipts.

return call('UNLINK', unpack(KEYS))
