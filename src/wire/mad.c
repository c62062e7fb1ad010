/* Management datagrams; see mad.h. */
#include "wire/mad.h"

#include "wire/be.h"

void mad_header_encode(const struct mad_header *header, uint8_t *out)
{
	out[0] = header->base_version;
	out[1] = header->management_class;
	out[2] = header->class_version;
	out[3] = header->method;
	be16_store(out + 4, header->status);
	be16_store(out + 6, header->class_specific);
	be64_store(out + 8, header->transaction_id);
	be16_store(out + 16, header->attribute_id);
	be16_store(out + 18, 0);
	be32_store(out + 20, header->attribute_modifier);
}

bool mad_header_decode(struct mad_header *header, const uint8_t *in, size_t bytes)
{
	if (bytes != MAD_BYTES || in[0] != MAD_BASE_VERSION)
		return false;
	*header = (struct mad_header){.base_version = in[0],
	                              .management_class = in[1],
	                              .class_version = in[2],
	                              .method = in[3],
	                              .status = be16_load(in + 4),
	                              .class_specific = be16_load(in + 6),
	                              .transaction_id = be64_load(in + 8),
	                              .attribute_id = be16_load(in + 16),
	                              .attribute_modifier = be32_load(in + 20)};
	return true;
}
