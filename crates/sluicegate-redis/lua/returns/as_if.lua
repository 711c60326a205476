-- Changes that are not stored: for calls that report what they would if a key had noticed which
-- receipts have expired, but leave it as it is.

-- What is written, by the name of the Redis key: `value` of a string (false: deleted), and
-- `fields` of a hash. Reads of anything else go to the store.
local shadows = {}

local function shadow_field(shadow, name, field)
  local value = shadow.fields[field]
  if value == nil then
    return not shadow.is_deleted and redis.call('HGET', name, field)
  end
  return value
end

local function shadow_call(command, name, ...)
  local shadow, arguments = shadows[name], { ... }
  if not shadow or command == 'ZRANGE' then
    return redis.call(command, name, ...)
  elseif command == 'GET' and shadow.value ~= nil then
    return shadow.value
  elseif command == 'GET' then
    return redis.pcall(command, name)
  elseif command == 'TYPE' then
    return shadow.value and { ok = 'string' } or redis.call(command, name)
  elseif command == 'HGET' then
    return shadow_field(shadow, name, arguments[1])
  elseif command == 'HMGET' then
    local values = {}
    for i, field in ipairs(arguments) do
      values[i] = shadow_field(shadow, name, field)
    end
    return values
  elseif command == 'SET' then
    shadow.value = arguments[1]
  elseif command == 'HSET' then
    for i = 1, #arguments, 2 do
      shadow.fields[arguments[i]] = arguments[i + 1]
    end
  elseif command == 'HDEL' then
    for _, field in ipairs(arguments) do
      shadow.fields[field] = false
    end
  elseif command == 'DEL' or command == 'UNLINK' then
    shadow.value, shadow.fields, shadow.is_deleted = false, {}, true
  end
end

-- From here on, what is written to these keys is not stored.
local function as_if(names)
  for _, name in ipairs(names) do
    shadows[name] = { fields = {} }
  end
  call, try = shadow_call, shadow_call
end
