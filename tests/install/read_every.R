# Reads the datasets that LIST names with hdf5r, and writes the numbers of each as doubles.
#
#   Rscript read_every.R FILE LIST FOLDER
#
# FOLDER/N.f8 has those of line N, in the order of the file; FOLDER/N.text says why there are none.

library(hdf5r)

given <- commandArgs(trailingOnly = TRUE)
names <- readLines(given[2])
file <- H5File$new(given[1], mode = "r")

numbers <- function(x) {
  if (is.factor(x)) x <- as.integer(x) # bool is an enumeration
  if (bit64::is.integer64(x)) return(bit64::as.double.integer64(x)) # a class of double
  if (is.complex(x)) return(as.vector(rbind(Re(as.vector(x)), Im(as.vector(x)))))
  if (is.data.frame(x)) return(as.vector(t(sapply(x, as.double))))
  if (is.character(x)) stop("text")
  as.double(as.vector(x))
}

for (i in seq_along(names)) {
  to <- file.path(given[3], i - 1)
  tryCatch({
    dataset <- file[[names[i]]]
    found <- if (any(dataset$dims == 0)) double(0) else numbers(dataset$read())
    writeBin(found, paste0(to, ".f8"), size = 8)
  }, error = function(e) writeLines(conditionMessage(e), paste0(to, ".text")))
}
