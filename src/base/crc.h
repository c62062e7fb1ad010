/* The checksums used on the wire, on top of ISA-L. CRC-32 (IEEE 802.3, reflected) is the invariant
 * CRC of InfiniBand and RoCE; CRC-32C (Castagnoli, reflected) is that of MPA. Both take and return
 * the finished value: start with 0, continue with the value returned. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* ISA-L exports another function (the unreflected CRC) by this name; the two must not be linked
 * into the same program. */
#define crc32_ieee base_crc32_ieee

uint32_t crc32_ieee(uint32_t crc, const void *data, size_t bytes);
/* As crc32_ieee() over @from, which is also copied to @to. */
uint32_t crc32_ieee_copy(uint32_t crc, void *to, const void *from, size_t bytes);
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
/* As crc32c() over @first, then over @second: for headers with a hole. */
uint32_t crc32c_two(uint32_t crc, const void *first, size_t first_bytes, const void *second,
                    size_t second_bytes);
/* As crc32c() over @from, which is also copied to @to. */
uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t bytes);
/* CRC-16 of the InfiniBand variant CRC: polynomial 0x100B, see IBTA volume 1 section 7.8.2. Called
 * like the functions above; the low byte goes first on the wire. */
uint16_t crc16_vcrc(uint16_t crc, const void *data, size_t bytes);

#endif
