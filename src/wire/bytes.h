/* Numbers in network byte order, at any alignment. The caller has judged the length. */
#ifndef WIRE_BYTES_H
#define WIRE_BYTES_H

#include <stdint.h>

static inline uint16_t be16_get(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t be24_get(const uint8_t *at)
{
	return (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
}

static inline uint32_t be32_get(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | be24_get(at + 1);
}

static inline uint64_t be64_get(const uint8_t *at)
{
	return (uint64_t)be32_get(at) << 32 | be32_get(at + 4);
}

static inline void be16_put(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void be24_put(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 16);
	at[1] = (uint8_t)(value >> 8);
	at[2] = (uint8_t)value;
}

static inline void be32_put(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 24);
	be24_put(at + 1, value);
}

static inline void be64_put(uint8_t *at, uint64_t value)
{
	be32_put(at, (uint32_t)(value >> 32));
	be32_put(at + 4, (uint32_t)value);
}

#endif
