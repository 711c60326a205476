-- Deletes the state of a key.
--
-- KEYS      its states and receipts, or its leases and their costs
-- Reply     the number of deleted Redis keys

return call('UNLINK', unpack(KEYS))
