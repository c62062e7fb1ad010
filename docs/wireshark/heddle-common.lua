-- What the dissectors of Heddle share. They find it beside them by require(); alone it does nothing.

local common = {}

-- CRC-32C, low bit first.
local crc_table = {}
for i = 0, 255 do
	local rest = i
	for _ = 1, 8 do
		local low = bit.band(rest, 1)
		rest = bit.rshift(rest, 1)
		if low == 1 then
			rest = bit.bxor(rest, 0x82f63b78)
		end
	end
	crc_table[i] = rest
end

-- Begin with 0xffffffff. @at: a function from an index to a byte.
local function crc_run(rest, at, from, count)
	for i = from, from + count - 1 do
		rest = bit.bxor(bit.rshift(rest, 8), crc_table[bit.band(bit.bxor(rest, at(i)), 0xff)])
	end
	return rest
end
-- Of @count bytes of a ByteArray.
function common.crc_add(rest, bytes, from, count)
	return crc_run(rest, function(i) return bytes:get_index(i) end, from, count)
end
function common.crc_end(rest)
	return bit.bnot(rest) % 0x100000000
end
-- Of a table of bytes.
function common.crc32c(bytes)
	return common.crc_end(crc_run(0xffffffff, function(i) return bytes[i] end, 1, #bytes))
end

-- Give @proto its fields, a table by name, and its experts.
function common.register(proto, fields, experts)
	local list = {}
	for _, field in pairs(fields) do
		table.insert(list, field)
	end
	proto.fields = list
	proto.experts = experts
end

-- Show a checksum of @digits that should be @right; nil: that is not known.
function common.show_check(tree, field, range, right, bad, digits)
	local item = tree:add(field, range)
	if right == nil then
		item:append_text(" [not verified: what comes before is missing]")
	elseif range:uint() == right then
		item:append_text(" [correct]")
	else
		item:append_text(string.format(" [wrong, should be 0x%0" .. (digits or 8) .. "x]", right))
		item:add_proto_expert_info(bad)
	end
end

-- Take Ethernet frames of @ethertype for which @is_ours(buffer), as @proto, whose dissector is @dissect. Others go to whoever took them before:
-- the types for experiments have several users.
function common.take_frames(ethertype, proto, is_ours, dissect)
	local frames = DissectorTable.get("ethertype")
	local before = frames:get_dissector(ethertype)
	proto.dissector = function(buffer, pinfo, tree)
		if is_ours(buffer) then
			return dissect(buffer, pinfo, tree)
		end
		return before and before:call(buffer, pinfo, tree) or 0
	end
	frames:add(ethertype, proto)
end

return common
