-- Wireshark dissector of the split driver, heddle-push(7): its messages, the frames that it writes, and what immediate data says.
--
--   tshark -X lua_script:heddle-push.lua -r FILE
--
-- It finds messages in the payload of InfiniBand and RoCE sends by their function, version and length, and frames in the payload of writes.

local common = require("heddle-common")

local FUNCTIONS = {[1] = "BufferRecvPool", [2] = "BufferRecvPoolGet", [3] = "BufferRecvPoolUpdate", [4] = "BufferPoolFlushRequest",
	[5] = "BufferPoolFlushReply", [6] = "SendData", [7] = "BufferRDMAIndicate", [8] = "CfgUtilRequest", [9] = "CfgUtilReply"}
local ITEMS = {[1] = "initialise", [2] = "MAC address", [3] = "MTU", [4] = "link state", [5] = "filter", [6] = "offloads",
	[7] = "statistics", [8] = "one more MAC address"}
local STATUS = {[0] = "success", [1] = "unknown item", [2] = "malformed", [3] = "refused", [4] = "read-only"}
local ACTIONS = {[0] = "get", [1] = "set"}
local STATISTICS = {"frames from the host", "bytes from the host", "frames to the host", "bytes to the host", "frames dropped",
	"source addresses refused"}
local VERSION, HEADER, LONGEST = 1, 12, 4096
local YOURS = 0x80000000
local VIRTIO = 10

local push = Proto("heddle_push", "Heddle split driver")
local f = {
	func = ProtoField.uint16("heddle_push.function", "Function", base.DEC, FUNCTIONS),
	version = ProtoField.uint16("heddle_push.version", "Version"),
	context = ProtoField.uint64("heddle_push.context", "Transaction context", base.HEX),
	pool = ProtoField.uint32("heddle_push.pool", "Pool"),
	owner = ProtoField.string("heddle_push.pool.owner", "Owner"),
	elements = ProtoField.uint32("heddle_push.pool.elements", "Elements"),
	element_bytes = ProtoField.uint32("heddle_push.pool.element_bytes", "Bytes of an element"),
	handle = ProtoField.uint32("heddle_push.pool.handle", "Memory handle", base.HEX),
	address = ProtoField.uint64("heddle_push.pool.address", "Address", base.HEX),
	flags = ProtoField.uint16("heddle_push.pool.flags", "Flags", base.HEX),
	port = ProtoField.uint16("heddle_push.pool.port", "Port"),
	source = ProtoField.ipv4("heddle_push.pool.source", "Source"),
	packet_bytes = ProtoField.uint32("heddle_push.get.bytes", "Packet size"),
	packets = ProtoField.uint32("heddle_push.get.packets", "Packets"),
	first = ProtoField.uint32("heddle_push.first", "First element"),
	element = ProtoField.uint32("heddle_push.element", "Element"),
	bytes = ProtoField.uint32("heddle_push.bytes", "Bytes"),
	size = ProtoField.uint32("heddle_push.size", "Size"),
	item = ProtoField.uint16("heddle_push.item", "Item", base.DEC, ITEMS),
	action = ProtoField.uint16("heddle_push.action", "Action", base.DEC, ACTIONS),
	status = ProtoField.uint16("heddle_push.status", "Status", base.DEC, STATUS),
	mac = ProtoField.ether("heddle_push.mac", "MAC address"),
	mtu = ProtoField.uint16("heddle_push.mtu", "MTU"),
	offloads = ProtoField.uint32("heddle_push.offloads", "Offloads", base.HEX),
	peer_version = ProtoField.uint16("heddle_push.peer_version", "Version of the sender"),
	up = ProtoField.bool("heddle_push.up", "Up"),
	filter = ProtoField.uint32("heddle_push.filter", "Filter", base.HEX),
	statistic = ProtoField.uint64("heddle_push.statistic", "Counter"),
	header = ProtoField.bytes("heddle_push.virtio_net_hdr", "Offload header"),
	part = ProtoField.bytes("heddle_push.frame", "Part of a frame"),
}
local expert_length = ProtoExpert.new("heddle_push.wrong_length", "Wrong length", expert.group.MALFORMED, expert.severity.ERROR)
common.register(push, f, {expert_length})

local bth_opcode = Field.new("infiniband.bth.opcode")
local ethernet = Dissector.get("eth_withoutfcs")

local function pool_reference(tree, buf)
	local value = buf:uint()
	tree:add(f.pool, buf, bit.band(value, 0x7fffffff))
	tree:add(f.owner, buf, bit.band(value, YOURS) ~= 0 and "receiver of this message" or "sender of this message"):set_generated()
	return bit.band(value, 0x7fffffff)
end

-- The value of a configuration item.
local VALUES = {
	[1] = function(tree, buf)
		tree:add(f.mac, buf(0, 6))
		tree:add(f.mtu, buf(6, 2))
		tree:add(f.offloads, buf(8, 4))
		tree:add(f.peer_version, buf(12, 2))
	end,
	[2] = function(tree, buf) tree:add(f.mac, buf(0, 6)) end,
	[3] = function(tree, buf) tree:add(f.mtu, buf(0, 2)) end,
	[4] = function(tree, buf) tree:add(f.up, buf(0, 1)) end,
	[5] = function(tree, buf)
		tree:add(f.filter, buf(0, 4))
		for at = 4, buf:len() - 6, 6 do
			tree:add(f.mac, buf(at, 6))
		end
	end,
	[6] = function(tree, buf) tree:add(f.offloads, buf(0, 4)) end,
	[7] = function(tree, buf)
		for i, name in ipairs(STATISTICS) do
			tree:add(f.statistic, buf(8 * (i - 1), 8)):prepend_text(name .. ": ")
		end
	end,
	[8] = function(tree, buf) tree:add(f.mac, buf(0, 6)) end,
}
local VALUE_BYTES = {16, 6, 2, 1, 4, 4, 48, 6}

local function configuration(tree, buf, reply)
	tree:add(f.item, buf(0, 2))
	tree:add(reply and f.status or f.action, buf(2, 2))
	local item = buf(0, 2):uint()
	if buf:len() > 4 and VALUES[item] and buf:len() - 4 >= VALUE_BYTES[item] then
		VALUES[item](tree, buf(4))
	elseif buf:len() > 4 then
		tree:add_proto_expert_info(expert_length)
	end
	local code = buf(2, 2):uint()
	return string.format(" %s %s", reply and (STATUS[code] or code) or (ACTIONS[code] or code), ITEMS[item] or item)
end

local BODIES = {
	[1] = function(tree, buf)
		local names = {}
		for at = 0, buf:len() - 32, 32 do
			local row = tree:add(push, buf(at, 32), string.format("Pool %u", buf(at, 4):uint()))
			row:add(f.pool, buf(at, 4))
			row:add(f.elements, buf(at + 4, 4))
			row:add(f.element_bytes, buf(at + 8, 4))
			row:add(f.handle, buf(at + 12, 4))
			row:add(f.address, buf(at + 16, 8))
			row:add(f.flags, buf(at + 24, 2))
			row:add(f.port, buf(at + 26, 2))
			row:add(f.source, buf(at + 28, 4))
			table.insert(names, string.format("%u: %u x %u", buf(at, 4):uint(), buf(at + 4, 4):uint(), buf(at + 8, 4):uint()))
		end
		return " " .. table.concat(names, ", ")
	end,
	[2] = function(tree, buf)
		tree:add(f.packet_bytes, buf(0, 4))
		tree:add(f.packets, buf(4, 4))
		return string.format(" %u x %u", buf(4, 4):uint(), buf(0, 4):uint())
	end,
	[3] = function(tree, buf)
		local names = {}
		for at = 0, buf:len() - 12, 12 do
			local row = tree:add(push, buf(at, 12), "Elements")
			local pool = pool_reference(row, buf(at, 4))
			row:add(f.first, buf(at + 4, 4))
			row:add(f.elements, buf(at + 8, 4))
			table.insert(names, string.format("%u: %u+%u", pool, buf(at + 4, 4):uint(), buf(at + 8, 4):uint()))
		end
		return " " .. table.concat(names, ", ")
	end,
	[4] = function(tree, buf)
		local names = {}
		for at = 0, buf:len() - 4, 4 do
			table.insert(names, pool_reference(tree, buf(at, 4)))
		end
		return " " .. table.concat(names, ", ")
	end,
	[5] = function() return "" end,
	[6] = function(tree, buf, pinfo)
		tree:add(f.size, buf(0, 4))
		if buf:len() >= 4 + VIRTIO + 14 then
			tree:add(f.header, buf(4, VIRTIO))
			ethernet:call(buf(4 + VIRTIO):tvb(), pinfo, tree)
		end
		return string.format(" %u bytes", buf(0, 4):uint())
	end,
	[7] = function(tree, buf)
		tree:add(f.pool, buf(0, 4))
		tree:add(f.element, buf(4, 4))
		tree:add(f.bytes, buf(8, 4))
		return string.format(" pool %u, element %u, %u bytes", buf(0, 4):uint(), buf(4, 4):uint(), buf(8, 4):uint())
	end,
	[8] = function(tree, buf)
		tree:add(f.size, buf(0, 4))
		return buf:len() >= 8 and configuration(tree, buf(4), false) or ""
	end,
	[9] = function(tree, buf)
		tree:add(f.size, buf(0, 4))
		return buf:len() >= 8 and configuration(tree, buf(4), true) or ""
	end,
}

-- How many of the @length bytes behind the header belong to the message? Packets are padded to four bytes. nil: it is none.
local function fits(func, length, buf)
	local entry = ({[1] = 32, [3] = 12, [4] = 4})[func]
	if entry then
		return length > 0 and length % entry == 0 and length or nil
	end
	local fixed = ({[2] = 8, [5] = 0, [7] = 12})[func]
	if fixed then
		return length == fixed and length or nil
	end
	local size = length >= 4 and buf(HEADER, 4):uint() or LONGEST
	return size <= length - 4 and length - 4 - size < 4 and size + 4 or nil
end

local function message(buf, pinfo, root)
	local func = buf(0, 2):uint()
	local tree = root:add(push, buf, "Heddle split driver: " .. FUNCTIONS[func])
	tree:add(f.func, buf(0, 2))
	tree:add(f.version, buf(2, 2))
	tree:add(f.context, buf(4, 8))
	local body = buf:len() > HEADER and buf(HEADER) or nil
	local more = body and BODIES[func](tree, body, pinfo) or ""
	pinfo.cols.protocol = "PUSH"
	pinfo.cols.info = FUNCTIONS[func] .. more
end

-- A frame, or a part of one, that was written into an element.
local function written(buf, pinfo, root, opcode)
	local tree = root:add(push, buf(), "Heddle split driver: frame")
	if (opcode == 10 or opcode == 11) and buf:len() >= VIRTIO + 14 then
		tree:add(f.header, buf(0, VIRTIO))
		ethernet:call(buf(VIRTIO):tvb(), pinfo, root)
		pinfo.cols.info:prepend("Frame: ")
	else
		tree:add(f.part, buf())
		pinfo.cols.info = string.format("Part of a frame, %u bytes", buf:len())
	end
	pinfo.cols.protocol = "PUSH"
end

-- Payload of InfiniBand packets. Sends of the services RC (0 to 5) and UC (32 to 37), writes (6 to 11, 38 to 43).
local function heuristic(buf, pinfo, root)
	local field = bth_opcode()
	if not field or buf:len() == 0 then
		return false
	end
	local opcode = field.value
	local service, operation = bit.rshift(opcode, 5), bit.band(opcode, 31)
	if service > 1 then
		return false
	end
	if operation >= 6 and operation <= 11 then
		written(buf, pinfo, root, operation)
		return true
	end
	if (operation ~= 4 and operation ~= 0) or buf:len() < HEADER or buf:len() > LONGEST then
		return false
	end
	local func = buf(0, 2):uint()
	if not FUNCTIONS[func] or buf(2, 2):uint() ~= VERSION then
		return false
	end
	local body = buf:len() - HEADER
	if operation == 4 then -- the first packet of a long message has not got all of it
		body = fits(func, body, buf)
	end
	if not body then
		return false
	end
	message(buf(0, HEADER + body), pinfo, root)
	return true
end
push:register_heuristic("infiniband.payload", heuristic)

-- What the immediate data of a write says: pool, element and size.
local indication = Proto("heddle_indication", "Heddle indication")
local i = {
	pool = ProtoField.uint32("heddle_indication.pool", "Pool"),
	element = ProtoField.uint32("heddle_indication.element", "Element"),
	bytes = ProtoField.uint32("heddle_indication.bytes", "Bytes"),
}
indication.fields = {i.pool, i.element, i.bytes}
local immediate = Field.new("infiniband.immdt")

function indication.dissector(_, pinfo, root)
	local field, data = bth_opcode(), immediate()
	if not field or not data then
		return
	end
	local operation = bit.band(field.value, 31)
	if bit.rshift(field.value, 5) > 1 or (operation ~= 9 and operation ~= 11) then
		return
	end
	local range = data.range
	local tree = root:add(indication, range, "Heddle indication")
	local bytes = range(2, 2):uint()
	tree:add(i.pool, range(0, 1), range(0, 1):uint())
	tree:add(i.element, range(1, 1), range(1, 1):uint())
	tree:add(i.bytes, range(2, 2), bytes == 0 and 65536 or bytes)
	pinfo.cols.info:append(string.format(" -> pool %u, element %u, %u bytes", range(0, 1):uint(), range(1, 1):uint(),
		bytes == 0 and 65536 or bytes))
end
register_postdissector(indication)
