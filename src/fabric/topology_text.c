/* The words of a topology file: see topology_text.h. */
#include "fabric/topology_text.h"

#include <string.h>

enum topology_split topology_split(struct topology_words *words, const char **at, const char *end)
{
	const char *from = *at, *stop = memchr(from, '\n', (size_t)(end - from));
	*at = stop != NULL ? stop + 1 : end;
	if (stop == NULL)
		stop = end;
	if (stop > from && stop[-1] == '\r')
		stop--;
	words->count = words->read = 0;
	while (from < stop) {
		if (*from == ' ' || *from == '\t') {
			from++;
			continue;
		}
		if (*from == '#')
			break;
		struct topology_word word = {.text = from};
		for (; from < stop && *from != ' ' && *from != '\t'; from++)
			if (*from < 0x21 || *from > 0x7e)
				return TOPOLOGY_SPLIT_BYTE;
		word.length = (size_t)(from - word.text);
		if (words->count == TOPOLOGY_MAX_WORDS)
			return TOPOLOGY_SPLIT_MANY;
		words->list[words->count++] = word;
	}
	return TOPOLOGY_SPLIT_OK;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool topology_is_name(const struct topology_word *word)
{
	if (word->length == 0 || word->length >= TOPOLOGY_NAME_BYTES || !is_letter(word->text[0]))
		return false;
	for (size_t i = 0; i < word->length; i++) {
		char c = word->text[i];
		if (!is_letter(c) && !is_digit(c) && c != '.' && c != '_' && c != '-')
			return false;
	}
	return true;
}

/* The value of a digit, or 16. */
static unsigned digit_of(char c)
{
	if (is_digit(c))
		return (unsigned)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned)(c - 'a') + 10;
	if (c >= 'A' && c <= 'F')
		return (unsigned)(c - 'A') + 10;
	return 16;
}

bool topology_to_number(const struct topology_word *word, uint64_t most, uint64_t *number)
{
	size_t i = 0;
	unsigned radix = 10;
	uint64_t value = 0;
	if (word->length > 2 && word->text[0] == '0' && word->text[1] == 'x') {
		radix = 16;
		i = 2;
	}
	if (i == word->length)
		return false;
	for (; i < word->length; i++) {
		unsigned digit = digit_of(word->text[i]);
		if (digit >= radix || value > (UINT64_MAX - digit) / radix)
			return false;
		value = value * radix + digit;
	}
	*number = value;
	return value <= most;
}

bool topology_to_key(const struct topology_word *word, uint8_t key[IBC_KEY_BYTES])
{
	if (word->length != 2 * IBC_KEY_BYTES)
		return false;
	for (size_t i = 0; i < IBC_KEY_BYTES; i++) {
		unsigned high = digit_of(word->text[2 * i]);
		unsigned low = digit_of(word->text[2 * i + 1]);
		if (high > 15 || low > 15)
			return false;
		key[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* The part of @word before the first @mark; *word keeps what follows. False: there is none. */
static bool cut_before(struct topology_word *word, char mark, struct topology_word *before)
{
	const char *at = memchr(word->text, mark, word->length);
	if (at == NULL)
		return false;
	before->text = word->text;
	before->length = (size_t)(at - word->text);
	word->text = at + 1;
	word->length -= before->length + 1;
	return true;
}

static bool to_ipv4(struct topology_word word, uint8_t bytes[4])
{
	for (unsigned i = 0; i < 4; i++) {
		struct topology_word part = word;
		uint64_t value;
		if (i < 3 && !cut_before(&word, '.', &part))
			return false;
		if (part.length > 3 || (part.length > 1 && part.text[0] == '0') ||
		    !topology_to_number(&part, 255, &value))
			return false;
		bytes[i] = (uint8_t)value;
	}
	return true;
}

/* One to four hexadecimal digits. */
static bool to_group(const struct topology_word *word, uint8_t bytes[2])
{
	unsigned value = 0;
	if (word->length == 0 || word->length > 4)
		return false;
	for (size_t i = 0; i < word->length; i++) {
		if (digit_of(word->text[i]) > 15)
			return false;
		value = value << 4 | digit_of(word->text[i]);
	}
	bytes[0] = (uint8_t)(value >> 8);
	bytes[1] = (uint8_t)value;
	return true;
}

/* Groups separated by colons, at most eight; *used is how many bytes they are. */
static bool to_groups(struct topology_word word, uint8_t bytes[16], size_t *used)
{
	*used = 0;
	while (word.length > 0) {
		struct topology_word group;
		bool more = cut_before(&word, ':', &group);
		if (!more) {
			group = word;
			word.length = 0;
		} else if (word.length == 0) {
			return false; /* it ends with a colon */
		}
		if (*used == 16 || !to_group(&group, bytes + *used))
			return false;
		*used += 2;
	}
	return true;
}

/* RFC 4291 section 2.2, without the form that ends with an IPv4 address. */
static bool to_ipv6(struct topology_word word, uint8_t bytes[16])
{
	size_t gap = 0, first, second;
	uint8_t tail[16];
	while (gap + 1 < word.length && (word.text[gap] != ':' || word.text[gap + 1] != ':'))
		gap++;
	if (gap + 1 >= word.length)
		return to_groups(word, bytes, &first) && first == 16;
	struct topology_word before = {.text = word.text, .length = gap};
	struct topology_word after = {.text = word.text + gap + 2, .length = word.length - gap - 2};
	memset(bytes, 0, 16);
	if (!to_groups(before, bytes, &first) || !to_groups(after, tail, &second) ||
	    first + second > 14)
		return false;
	memset(bytes + first, 0, 16 - first);
	memcpy(bytes + 16 - second, tail, second);
	return true;
}

/* Is it the address of one host? */
static bool is_unicast(const struct topology_address *address)
{
	static const uint8_t none[16], every[4] = {255, 255, 255, 255};
	const uint8_t *bytes = address->bytes;
	if (address->ipv6)
		return bytes[0] != 0xff && memcmp(bytes, none, 16) != 0;
	return bytes[0] >> 4 != 0xe && memcmp(bytes, none, 4) != 0 && memcmp(bytes, every, 4) != 0;
}

bool topology_to_address(const struct topology_word *word, struct topology_address *address)
{
	struct topology_word rest = *word, ip, empty;
	uint64_t port;
	memset(address, 0, sizeof(*address));
	address->ipv6 = word->length > 0 && word->text[0] == '[';
	if (address->ipv6) {
		rest.text++;
		rest.length--;
		if (!cut_before(&rest, ']', &ip) || !to_ipv6(ip, address->bytes) ||
		    !cut_before(&rest, ':', &empty) || empty.length != 0)
			return false;
	} else if (!cut_before(&rest, ':', &ip) || !to_ipv4(ip, address->bytes)) {
		return false;
	}
	if (!topology_to_number(&rest, 65535, &port) || port == 0)
		return false;
	address->port = (uint16_t)port;
	return is_unicast(address);
}

static bool to_mac(struct topology_word word, uint8_t mac[6])
{
	for (unsigned i = 0; i < 6; i++) {
		struct topology_word part = word;
		if (i < 5 && !cut_before(&word, ':', &part))
			return false;
		if (part.length != 2 || digit_of(part.text[0]) > 15 || digit_of(part.text[1]) > 15)
			return false;
		mac[i] = (uint8_t)(digit_of(part.text[0]) << 4 | digit_of(part.text[1]));
	}
	return (mac[0] & 1) == 0; /* of one interface, not of a group */
}

bool topology_to_interface(const struct topology_word *word, struct topology_end *end)
{
	struct topology_word rest = *word, name = *word;
	end->has_mac = cut_before(&rest, '/', &name);
	if (end->has_mac && !to_mac(rest, end->mac))
		return false;
	if (name.length == 0 || name.length >= TOPOLOGY_INTERFACE_BYTES)
		return false;
	memcpy(end->interface, name.text, name.length);
	end->interface[name.length] = '\0';
	return true;
}
