% Reads every dataset of FILE with Octave's load, and writes the numbers of each as doubles.
%
%   octave-cli read_every.m FILE LIST FOLDER
%
% FOLDER/N.f8 has those of the dataset on line N of LIST, in the order of the file; FOLDER/N.text
% says why there are none.

1;
function x = field (all, name)
  x = all;
  for part = strsplit (name, '/')
    x = x.(regexprep (part{1}, '[^A-Za-z0-9_]', '_'));
  end
end

given = argv ();
names = strsplit (strtrim (fileread (given{2})), "\n");
for i = 1:numel (names)
  to = fullfile (given{3}, num2str (i - 1));
  try
    top = strsplit (names{i}, '/'){1};
    % Its names have other characters in the place of those that Octave's may not have.
    all = load ('-hdf5', given{1}, regexprep (top, '[^A-Za-z0-9_]', '?'));
    x = field (all, names{i});
    if (ischar (x))
      error ('text');
    end
    if (iscomplex (x))
      x = [real(x(:))'; imag(x(:))'];
    end
    f = fopen ([to '.f8'], 'w');
    fwrite (f, double (x(:)), 'double');
    fclose (f);
  catch e
    f = fopen ([to '.text'], 'w');
    fputs (f, e.message);
    fclose (f);
  end
end
