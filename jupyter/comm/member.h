/* The members of requests: which operation has which, and what each may hold. */
#ifndef GPUFI_COMM_MEMBER_H
#define GPUFI_COMM_MEMBER_H

#include "comm/failure.h"
#include "comm/request.h"

#include <jansson.h>

/* Take one member into its field of `request`, whose operation is known. */
gpufi_code gpufi_member_take(const char *key, const json_t *value, gpufi_request *request,
                             gpuf_error *err);
/* Check that the operation has what it needs, once all members are taken. */
gpufi_code gpufi_members_check(const gpufi_request *request, gpuf_error *err);

/* Take an id; `what` names it in messages. */
gpufi_code gpufi_token_take(const char *what, const json_t *value, gpufi_token *token,
                            gpuf_error *err);

#endif
