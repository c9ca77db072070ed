/* The members of requests: which operation has which, and what each may hold. */
#ifndef GPUFI_COMM_MEMBER_H
#define GPUFI_COMM_MEMBER_H

#include "comm/failure.h"
#include "comm/object.h"
#include "comm/request.h"

/* The name of an operation's member that `quoted`, a name as it was sent, is; NULL if it has none
 * of that name. */
const char *gpufi_member_name(gpufi_raw quoted, gpufi_op op);
/* Take the member of that name into its field of `request`. */
gpufi_code gpufi_member_take(const char *name, const json_t *value, gpufi_request *request,
                             gpuf_error *err);
/* Check that the operation has what it needs, once all members are taken. */
gpufi_code gpufi_members_check(const gpufi_request *request, gpuf_error *err);

/* Take an id; `what` names it in messages. */
gpufi_code gpufi_token_take(const char *what, const json_t *value, gpufi_token *token,
                            gpuf_error *err);

#endif
